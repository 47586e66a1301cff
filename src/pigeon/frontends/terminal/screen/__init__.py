"""The view that draws: live blocks, the input, questions and the footer, on prompt_toolkit."""
