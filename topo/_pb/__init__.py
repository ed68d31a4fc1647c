"""Generated from proto/ by .ci/generate."""
