"""A conversation as a given model accepts it, and the encoded form of it kept between requests."""
