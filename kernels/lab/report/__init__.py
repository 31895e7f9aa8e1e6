"""What the lab says of a launch: counts by line, findings, and their text, HTML and picture."""
