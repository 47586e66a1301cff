"""Where tasks are done: the commit that a revision is, and fresh copies of folders and repositories."""
