"""What the local engines share: tries, token boundaries, sampling, model files."""
