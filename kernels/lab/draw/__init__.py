"""Pictures as SVG strings, PNG and text."""
