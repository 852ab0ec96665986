-- The vectors that a revision stands for.   own: revision vectors   reply: those that are stored, these if none were
allowed_when_full()                     -- plain HSETNX is refused even where nothing is to be written
call('HSETNX', R .. ':references', ARGV[OWN], ARGV[OWN + 1])
return call('HGET', R .. ':references', ARGV[OWN])
