"""What judges the promise: no acknowledged message is missing from a later strong read, none appears twice in any."""
