-- The vectors that a revision stands for.   own: revision vectors   reply: those that are stored, these if none were
allowed_when_full()
local key = R .. ':references'
call('HSETNX', key, arg(1), arg(2))
return call('HGET', key, arg(1))
