"""Mount plans: generated from builds, converted between their two forms, validated, compared and explained."""
