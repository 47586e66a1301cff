"""What the versions of the protocol differ in: how each writes what Pigeon has to say."""
