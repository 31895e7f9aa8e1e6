"""Programs in torch's idiom: `python -m minigrad.examples.cnn`; each has a `main` with sizes."""
