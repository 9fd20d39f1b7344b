"""Vision at the edge: estimates from stored images, and the models that the scale teaches."""
