"""The page: plain files for the browser, which the daemon serves below `/app/`."""
