"""DynamoDB: the clients, and the ports that are implemented over them."""
