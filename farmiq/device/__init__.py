"""The weigh station: `iot-weighvision-agent`, scale and camera in, sessions out, nothing lost."""
