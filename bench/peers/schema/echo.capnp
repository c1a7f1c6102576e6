@0xb1c6f0c4a7d35e29;

interface Echo {
  echo @0 (data :Data) -> (data :Data);
  # The server keeps the object, unless it has it.
  keep @1 (data :Data, object :Echo) -> (data :Data);
  # The server keeps nothing of the object.
  drop @2 (data :Data, object :Echo) -> (data :Data);
  # The server drops what it keeps.
  forget @3 () -> ();
  # The server answers with an object of its own.
  give @4 (data :Data) -> (data :Data, object :Echo);
  # The server sees that the object is its own.
  takeHome @5 (data :Data, object :Echo) -> (data :Data);
  count @6 () -> (received :UInt64, kept :UInt64);
}
