"""The bench itself: what it says must be true."""
