"""Waydroid's own interfaces over gbinder-python, without its container.

    waydroid.py SOURCES serve BINDER_PROTOCOL MANAGER_PROTOCOL
    waydroid.py SOURCES ask BINDER_PROTOCOL MANAGER_PROTOCOL

`serve` offers the three services of Waydroid's session, as the session does in threads of one
process, and in Android's place the platform service, which only keeps properties. `ask` calls all
of them: the platform service by Waydroid's class, as its command line does.
"""

import functools
import os
import sys
import threading
import types

sources, role, binder_protocol, manager_protocol = sys.argv[1:]
sys.path[:0] = [os.path.join(sources, "gbinder-python"), os.path.join(sources, "waydroid")]

import gbinder  # noqa: E402
from gi.repository import GLib  # noqa: E402
from tools import helpers  # noqa: E402
from tools.interfaces import IClipboard, IHardware, IPlatform, IUserMonitor  # noqa: E402

TEXT = "Gr\u00fc\u00dfe \U0001f44b"


def load_binder_nodes(arguments):
    """Stands for the file in which Waydroid notes what its container has."""
    arguments.BINDER_DRIVER = "binder"
    arguments.BINDER_PROTOCOL = binder_protocol
    arguments.SERVICE_MANAGER_PROTOCOL = manager_protocol


helpers.drivers.loadBinderNodes = load_binder_nodes


def serve_platform(manager):
    properties = {}

    def handle(request, code, _flags):
        reader, reply = request.init_reader(), local.new_reply()
        if code == IPlatform.TRANSACTION_getprop:
            name, default = reader.read_string16(), reader.read_string16()
            reply.append_int32(0)
            reply.append_string16(properties.get(name, default))
        elif code == IPlatform.TRANSACTION_setprop:
            name = reader.read_string16()
            properties[name] = reader.read_string16()
            reply.append_int32(0)
        else:
            return reply, -99999
        return reply, 0

    local = manager.new_local_object(IPlatform.INTERFACE, handle)
    assert manager.add_service_sync(IPlatform.SERVICE_NAME, local) == 0
    GLib.MainLoop().run()


def serve():
    arguments, clipboard = types.SimpleNamespace(), [""]
    say = functools.partial(print, flush=True)
    services = [
        lambda: IClipboard.add_service(
            arguments, lambda text: clipboard.__setitem__(0, text), lambda: clipboard[0]
        ),
        lambda: IHardware.add_service(
            arguments,
            lambda enable: 7 if enable else 8,
            lambda enable: 9,
            lambda: say("suspend"),
            lambda: say("reboot"),
            lambda *images: say("upgrade", *images),
            lambda reason: say("shutdown", reason),
        ),
        lambda: IUserMonitor.add_service(
            arguments, lambda user: say("unlocked", user), lambda *change: say("package", *change)
        ),
        lambda: serve_platform(
            gbinder.ServiceManager("/dev/binder", manager_protocol, binder_protocol)
        ),
    ]
    threads = [threading.Thread(target=service, daemon=True) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ask():
    platform = IPlatform.get_service(types.SimpleNamespace())
    assert platform.getprop("name", TEXT) == TEXT
    for number in range(200):
        platform.setprop("name", f"{TEXT} {number}")
        assert platform.getprop("name", "") == f"{TEXT} {number}"

    manager = gbinder.ServiceManager("/dev/binder", manager_protocol, binder_protocol)
    modules = [IClipboard, IHardware, IPlatform, IUserMonitor]
    assert {module.SERVICE_NAME for module in modules} <= set(manager.list_sync())

    def call(module, code, *values):
        remote, _ = manager.get_service_sync(module.SERVICE_NAME)
        client = gbinder.Client(remote, module.INTERFACE)
        request = client.new_request()
        for value in values:
            is_text = isinstance(value, str)
            (request.append_string16 if is_text else request.append_int32)(value)
        reply, status = client.transact_sync_reply(code, request)
        return status, reply.init_reader() if reply else None

    assert call(IClipboard, IClipboard.TRANSACTION_sendClipboardData, TEXT)[0] == 0
    status, reader = call(IClipboard, IClipboard.TRANSACTION_getClipboardData)
    assert (status, reader.read_int32(), reader.read_string16()) == (0, (True, 0), TEXT)
    status, reader = call(IHardware, IHardware.TRANSACTION_enableNFC, 1)
    assert (status, reader.read_int32(), reader.read_int32()) == (0, (True, 0), (True, 7))
    assert call(IHardware, IHardware.TRANSACTION_shutdownRequest, "1")[0] == 0
    assert call(IHardware, 77)[0] == -99999
    assert call(IUserMonitor, IUserMonitor.TRANSACTION_packageStateChanged, 1, "a.b", 2)[0] == 0


serve() if role == "serve" else ask()
