-- A worker lives.   own: worker ttl_ms rate entry (JSON)
allowed_when_full()
call('ZADD', WORKERS, int(NOW + tonumber(arg(2))), arg(1))
call('HSET', RATES, arg(1), arg(3))
call('SET', Q .. ':worker:' .. arg(1), arg(4), 'PX', arg(2))
prune_workers()
return 1
