"""Registration without learning: ICP, Go-ICP, and Open3D's global methods."""
