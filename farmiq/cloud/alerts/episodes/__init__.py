"""Episodes: those of edges, who is called, put right, and what people ask of them."""
