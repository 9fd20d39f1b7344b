"""Forms by which people write down records and feed; the pages of both sites use them."""
