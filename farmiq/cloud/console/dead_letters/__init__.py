"""Dead letters of a company: why they died, what people order to be done with them, the outcome."""
