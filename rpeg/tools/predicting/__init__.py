"""From the command line to a placed pipeline that can be priced: clusters, plans, architectures."""
