"""Everything that starts or kills a process. Nothing else in Pigeon does."""
