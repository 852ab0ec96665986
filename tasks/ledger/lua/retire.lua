-- A worker stops.   own: worker
-- uses: wakeup
allowed_when_full()
local lived = call('ZREM', WORKERS, arg(1)) == 1
stop_lingering(arg(1))
call('HDEL', RATES, arg(1))
call('UNLINK', Q .. ':worker:' .. arg(1))
prune_workers(lived)
return 1
