"""Recordings: exchanges with model servers kept in a file, and a model that answers from one."""
