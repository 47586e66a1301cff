"""The view that draws: what is live, the input, questions and the footer, on prompt_toolkit."""
