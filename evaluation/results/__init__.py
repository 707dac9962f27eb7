"""What came of it: spools that workers append to, the database made of them, and the tables read from it.

spool      workers append facts (records) and write samples
ingest     one process at a time moves facts from spools into the database
snapshot   a read-only copy of the database, published whole
query      one SELECT on the snapshot
compare    the table of a study: methods, seeds, intervals, paired tests
"""
