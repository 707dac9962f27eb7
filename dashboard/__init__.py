"""What the results look like: pages that read the published snapshot and nothing else.

app         the frame `streamlit run` executes
serve       starts it, on this machine only
reading     cached reads of the snapshot, keyed on its version
choices     widgets whose state is the page's address
frames      pure: results -> tables
charts      pure: tables -> chart specifications, and the one place of colours
views       one module a page
"""
