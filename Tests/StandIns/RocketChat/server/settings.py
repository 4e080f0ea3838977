"""Settings of the workspace that change what this server does, with the defaults of the server."""

DEFAULTS = {
    # id: (default, public)
    "Accounts_AllowAnonymousRead": (False, True),
    "Accounts_RegistrationForm": ("Public", True),
    "API_Default_Count": (50, False),
    "API_Upper_Count_Limit": (100, False),
    "API_Allow_Infinite_Count": (True, False),
    "API_Enable_Rate_Limiter": (True, False),
    "API_Enable_Rate_Limiter_Limit_Calls_Default": (10, False),
    "API_Enable_Rate_Limiter_Limit_Time_Default": (60000, False),
    "Discussion_enabled": (True, True),
    "FileUpload_Enabled": (True, True),
    "FileUpload_MaxFileSize": (8 * 1024 * 1024, True),
    "FileUpload_ProtectFiles": (True, True),
    "Message_AllowDeleting": (True, True),
    "Message_AllowEditing": (True, True),
    "Message_AllowPinning": (True, True),
    "Message_AllowStarring": (True, True),
    # A JSON schema: the name and the type of each field.
    "Message_CustomFields": ('{"properties": {"priority": {"type": "string"}}, "required": ["priority"]}', False),
    "Message_CustomFields_Enabled": (False, False),
    "Message_KeepHistory": (False, True),
    "Message_MaxAllowedSize": (5000, True),
    "Message_ShowDeletedStatus": (False, True),
    "Search.defaultProvider.GlobalSearchEnabled": (False, True),
    "Site_Name": ("Rocket.Chat", True),
    "Site_Url": ("http://127.0.0.1", True),
    "Store_Last_Message": (True, True),
    "Threads_enabled": (True, True),
    "UI_Use_Real_Name": (False, True),
}


class Settings:
    def __init__(self, world):
        self.world = world
        for identifier, (value, public) in DEFAULTS.items():
            if not world.db.get("settings", identifier):
                world.db.put("settings", {"_id": identifier, "value": value, "public": public})
        self.values = {row["_id"]: row["value"] for row in world.db.find("settings")}

    def __getitem__(self, identifier):
        return self.values[identifier]

    def set(self, identifier, value):
        setting = self.world.db.get("settings", identifier)
        setting["value"] = value
        self.world.db.put("settings", setting)
        self.values[identifier] = value
        if setting["public"]:
            self.world.streams.emit(
                "stream-notify-all", "public-settings-changed", "updated", {"_id": identifier, "value": value})
