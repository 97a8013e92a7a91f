"""`make rehearse`: the real CDK command line deploys, updates, fails and destroys, against moto's server."""
