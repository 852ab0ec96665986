-- A worker lives.   own: worker ttl_ms rate worker entry (JSON) model entry (JSON or '')
allowed_when_full()
look_at_clock(true)
call('HDEL', S, 'idle')
call('ZADD', WORKERS, int(NOW + tonumber(arg(2))), arg(1))
call('HSET', RATES, arg(1), arg(3))
call('SET', Q .. ':worker:' .. arg(1), arg(4), 'PX', arg(2))
if arg(5) ~= '' then call('HSETNX', R .. ':models', MODEL, arg(5)) end  -- a Redis that lost its data learns the model again
prune_workers()
return 1
