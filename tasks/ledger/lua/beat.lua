-- A worker lives.   own: worker ttl_ms rate worker entry (JSON) model entry (JSON or '') stamp
-- reply: 1, 0: its model is no longer served, so it does not count
-- uses: leases wakeup
allowed_when_full()
local serves = served()
if arg(6) ~= '' and serves and serves ~= arg(6) then return 0 end
look_at_clock(true)
call('HDEL', S, 'idle')
call('ZADD', WORKERS, int(NOW + tonumber(arg(2))), arg(1))
call('HSET', RATES, arg(1), arg(3))
call('SET', Q .. ':worker:' .. arg(1), arg(4), 'PX', arg(2))
if arg(5) ~= '' then                    -- a Redis that lost its data learns the model again
  call('HSETNX', R .. ':models', QUEUE, arg(5))
  call('HSETNX', S, 'serves', arg(6))
end
prune_workers()
return 1
