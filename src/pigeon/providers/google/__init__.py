"""The API `google-generative-ai`."""
