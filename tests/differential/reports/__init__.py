"""Random reports against a plain model; README.md says how."""
