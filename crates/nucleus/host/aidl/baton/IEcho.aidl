package baton;

interface IEcho {
    String echo(String text);
}
