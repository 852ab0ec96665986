-- Gives back what a claim still holds; the attempt is refunded.   own: token   reply: bell due
-- uses: leases turns wakeup
allowed_when_full()
for _, stream in ipairs(call('ZRANGE', LINGER, 0, -1)) do  -- it has gone: nothing is to be handed to it any more
  if string.sub(arg(1), 1, #stream + 1) == stream .. '/' then call('ZREM', LINGER, stream) end
end
drop_claim(arg(1), true)
announce()
return ready() > 0 and wake() or 0
