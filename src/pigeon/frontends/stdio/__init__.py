"""`pigeon --mode rpc` and `pigeon attach`: the protocol on stdin and stdout."""
