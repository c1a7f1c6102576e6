module baton/tests/programs/go

go 1.22
