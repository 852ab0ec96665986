-- A model was loaded and serves, unless live workers serve another one under its name.
-- own: entry (JSON) stamp worker ttl_ms   ("" and 0: nobody in particular)   reply: 1, 0 refused
-- The worker counts as live from here on, so of two that start together with different models one is refused.
-- uses: leases
allowed_when_full()
local stamp, worker, ttl = arg(2), arg(3), tonumber(arg(4))
local serves = served()
if serves and serves ~= stamp then
  for _, other in ipairs(call('ZRANGEBYSCORE', WORKERS, '(' .. int(NOW), '+inf')) do
    if other ~= worker then return 0 end
  end
  -- Whoever still holds a claim has the model before, and must not commit any more: nobody's fault.
  for _, token in ipairs(call('ZRANGE', LEASES, 0, -1)) do drop_claim(token, true) end
  call('DEL', LINGER)                   -- nor does waking it help anybody
end
call('HSET', S, 'serves', stamp)
call('HSET', R .. ':models', QUEUE, arg(1))
if ttl > 0 then call('ZADD', WORKERS, int(NOW + ttl), worker) end
count('model_loads', 1)
announce()
return 1
