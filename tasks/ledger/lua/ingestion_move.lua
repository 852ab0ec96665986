-- Changes an ingestion if it is as expected, and enqueues tasks with the change.
-- own: id move, then successors (shared/enqueue.lua)
-- reply: {1 moved, the status now or '', queue for which a bell is due...}
-- uses: enqueue ingestions
allowed_when_full()
local moved, status = move_ingestion(arg(1), cjson.decode(arg(2)))
local out = {moved and 1 or 0, status}
if moved then
  for _, queue in ipairs(enqueue(FIRST + 3)) do out[#out + 1] = queue end
end
return out
