-- Reads a record and changes nothing.
-- KEYS[1]  the record
-- ARGV[1]  '1' for the whole of it, its result included
-- returns  found record | absent

if rec then
  return 'found ' .. stamp .. (ARGV[1] == '1' and rec or sub(rec, 1, 56))
end
return 'absent ' .. stamp
