module baton/tests/programs/go-alone

go 1.22
