package baton;

interface IProperties {
    @nullable String get(String name);
    void set(String name, String value);
    String[] list();
}
