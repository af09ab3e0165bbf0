"""What `rpeg check --cluster` proves of a placed pipeline: order, staleness, memory."""
