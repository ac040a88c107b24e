"""What the tool does, on two scans that come with it."""
