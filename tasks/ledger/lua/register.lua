-- A model was loaded and serves.   own: entry (JSON)
allowed_when_full()
call('HSET', R .. ':models', MODEL, arg(1))
count('model_loads', 1)
return 1
