"""Sites of cameras: their days, images and schedules."""
