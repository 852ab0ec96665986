-- The worker's previous incarnation died: its claims are lost now, not at the end of their leases.
-- own: worker   reply: bell due.   O(number of claims and lingerers), few per worker.
-- uses: leases turns wakeup
local prefix = arg(1) .. '/'
allowed_when_full()
stop_lingering(arg(1))
call('HDEL', S, 'bell', 'rings')        -- rung for workers that were not there, and by now perhaps believed for half a minute
for _, token in ipairs(call('ZRANGE', LEASES, 0, -1)) do
  if string.sub(token, 1, #prefix) == prefix then lose_claim(token) end
end
announce()
return ready() > 0 and wake() or 0
