-- Gives back what a claim still holds; the attempt is refunded. Who waits with this token is handed nothing more.
-- own: token   reply: bell due
-- uses: leases turns wakeup
allowed_when_full()
for _, stream in ipairs(call('ZRANGE', LINGER, 0, -1)) do
  local request = string.sub(arg(1), 1, #stream + 1) == stream .. '/' and asked_by(stream)
  if request and request[TOKEN] == arg(1) then call('ZREM', LINGER, stream) end
end
drop_claim(arg(1), true)
announce()
return ready() > 0 and wake() or 0
