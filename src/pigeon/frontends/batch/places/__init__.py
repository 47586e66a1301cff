"""Where tasks run: the commit of each revision, and fresh copies of folders and repositories."""
