-- Prolongs a lease.   own: token lease_ms   reply: 1 still held
-- uses: leases
allowed_when_full()
look_at_clock()
if not call('ZSCORE', LEASES, arg(1)) then return 0 end
call('ZADD', LEASES, 'XX', int(NOW + tonumber(arg(2))), arg(1))
return 1
